"""Range checks of loss settings."""


def check_range(name: str, value: float | str, ok: bool, allowed: str) -> None:
    """Raise ValueError naming the setting, its value and what is allowed, unless `ok`."""
    if not ok:
        raise ValueError(f"{name} {value} is out of range: {allowed}")


def check_classifier(embedding_dim: int, classes: int, scale: float, label_smoothing: float) -> None:
    """Raise ValueError unless sizes are 1 or more, `scale` is above 0 and `label_smoothing` in [0, 1)."""
    check_range("embedding_dim", embedding_dim, embedding_dim >= 1, "1 or more")
    check_range("classes", classes, classes >= 1, "1 or more")
    check_range("scale", scale, scale > 0, "above 0")
    check_range("label_smoothing", label_smoothing, 0 <= label_smoothing < 1, "[0, 1)")
