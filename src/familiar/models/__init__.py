"""Networks from crop tensor to unit embedding: trunks, heads, initial weights (torch)."""
