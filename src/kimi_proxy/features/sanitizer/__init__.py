"""Long outputs of tools in a conversation, shortened to what its goal needs.

Cut in two, because an original has to be kept before anything is cut from it: `plan` finds the outputs, a service has
them shortened (`shorten`), keeps them and stores how they left, `stage` puts the shown texts in their place."""
