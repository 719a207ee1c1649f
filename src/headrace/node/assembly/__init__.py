"""One node, wired: a member of the quorum, controller and broker behind one dispatch; pure."""
