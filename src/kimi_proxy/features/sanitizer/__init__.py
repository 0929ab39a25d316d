"""Long outputs of tools in a conversation, shortened to what its goal needs.

Cut in two, because an original has to be kept before anything is cut from it: `plan` finds the outputs, somebody
has them shortened (`shorten`), keeps them and remembers how they left, `apply` puts the shown texts in their place."""
