"""Names for numbers and things, the seams, the settings: values only, no behaviour of the world."""
