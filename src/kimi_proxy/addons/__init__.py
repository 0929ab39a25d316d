"""Optional features: each folder can be deleted, and is loaded only when its settings switch it on."""
