"""Put folders of images, tables and other collections into stores that can be searched."""
