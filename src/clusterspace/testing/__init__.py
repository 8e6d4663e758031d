"""The test kit we ship."""
