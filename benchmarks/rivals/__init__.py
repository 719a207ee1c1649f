"""Systems that deliver messages later, each as processes behind the same few verbs."""
