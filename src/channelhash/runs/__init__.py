"""A large model's codes, learned by a small one."""
