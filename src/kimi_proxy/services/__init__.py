"""The actions: services connect the pure features with the outside world."""
