"""Several processes behind one address: who serves which session, and who takes over."""
