"""Optional parts that nothing else imports: evaluation, replay, the demo, the log watcher."""
