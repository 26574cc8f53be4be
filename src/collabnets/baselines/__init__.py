"""The methods that the paper compares with, one a file, all with the face of ``CollaboratingRegressor``."""
