"""Compress vectors that an encoder has made, and prove how good the codes are."""

from channelhash.compression.compressor import Compressed, Compressor, Found
from channelhash.compression.exports import export_compressor
from channelhash.compression.models import compress

__all__ = ["Compressed", "Compressor", "Found", "compress", "export_compressor"]
