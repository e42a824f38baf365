"""Value types and constants, the seams, and the settings: no behavior beyond values."""
