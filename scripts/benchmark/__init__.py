"""What scripts/bench is made of: the peer, the machine's floors, the alternated rounds and the record they leave."""
