"""Models that come with the package."""

from pathlib import Path

PSALTER = Path(__file__).parent / "psalter"
