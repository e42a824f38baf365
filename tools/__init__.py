"""Programs for the people who work on Lograft; none of it ships with the package."""
