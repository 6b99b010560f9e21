HELP = "from the role"
