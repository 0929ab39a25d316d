"""A working day of an agent, written beforehand: what people say, what the model answers, what tools print."""
