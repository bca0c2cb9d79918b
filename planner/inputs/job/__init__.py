"""What the user wants trained, under which limits: the job file `scav.yaml`."""
