"""Programs for developers of Lograft, which are not part of the package."""
