SHADOW = "the project's urls"
