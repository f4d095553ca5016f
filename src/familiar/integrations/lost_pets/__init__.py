"""The register of lost and found pets: an identity is a pet, its report says where it was lost or found."""
