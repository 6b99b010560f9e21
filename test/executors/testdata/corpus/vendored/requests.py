WHOSE = "of the module"
