"""Long outputs of tools in a conversation, shortened to what its goal needs.

Cut in steps, because an original has to be kept before anything is cut from it: `plan` finds the outputs, a service has
them scored (`shorten`), `decide` chooses the form of each, the service stores it, `stage` applies it."""
