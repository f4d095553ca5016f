"""The pages and the HTTP API over one gallery, for a person with a browser and for programs."""
