"""Pictures of an evaluation: charts for a light and a dark page, and photos side by side."""
