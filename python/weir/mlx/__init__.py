"""Models in MLX whose weights stay in their files: mapped, or streamed within a byte budget."""
from ._arrays import from_view, mmap_weights
from ._load import Copied, Stats, load, load_model, release, restore, stats
from ._shim import ShimError

__all__ = ["Copied", "ShimError", "Stats", "from_view", "load", "load_model", "mmap_weights", "release", "restore", "stats"]
