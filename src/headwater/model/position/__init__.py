"""How far a pipeline has read: marks, what they remember of streams, and the window between two of them."""
