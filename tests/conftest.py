import sys
from pathlib import Path

# Literal transcriptions and fixture generators are imported by the tests that use them.
sys.path.insert(0, str(Path(__file__).parent))
