"""One function per published way of training; each returns a complete Recipe."""
