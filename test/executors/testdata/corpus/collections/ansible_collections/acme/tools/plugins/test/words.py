class TestModule:
    def tests(self):
        return {"palindrome": lambda text: text == text[::-1]}
