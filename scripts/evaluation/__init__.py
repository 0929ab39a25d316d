"""How well lines are chosen, judged on questions whose answers are known: what `kimi-proxy eval` runs in a clone."""
