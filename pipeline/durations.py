"""Durations as text."""


def duration(seconds: float) -> str:
    """Format a measured duration to the second: 45s, 3m20s, 2h05m."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60:02d}s"
    return f"{seconds // 3600}h{seconds % 3600 // 60:02d}m"


def estimate(seconds: float) -> str:
    """Format an estimated duration in one unit: 45 s, 12 minutes, 1.5 hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:,.1f} hours"
