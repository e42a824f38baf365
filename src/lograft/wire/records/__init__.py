"""Records of the metadata log, the coordinators and control batches. Generated."""
