"""What a collection of any size needs: cost from measured rates, and simulations of failing and slow machines."""
