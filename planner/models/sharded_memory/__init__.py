"""What a GPU holds when a transformer is trained, sharded or not: by formula, corrected by published measurements."""
