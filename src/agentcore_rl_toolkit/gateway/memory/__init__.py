"""What a session keeps beside its graph: what its clients were told, and how to find it again."""
