"""The cost review of a plan: for a person, for a pull request, for a policy gate."""
