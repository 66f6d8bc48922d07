"""The audit: judges for each kind of data, the result, and corrected labels."""
