"""What is wrong with data besides their labels: copies, leaks, outliers, defects, imbalance, order, weak groups, overlap."""
