"""Share groups (KIP-932) at the leader of a partition: sessions, locks, acknowledgements."""
