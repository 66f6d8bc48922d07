"""Issues of data besides labels: copies, leaks, outliers, defects, imbalance, order, weak groups, overlap."""
