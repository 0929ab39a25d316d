"""The sanitizer: shortens long tool results in a conversation to the parts that its goal needs.

It works in steps, because an original must be stored before anything is cut: `plan` finds the results, a service has
them scored (`shorten`), `decide` chooses the form of each, the service stores it, `stage` applies it."""
