"""The words of Headwater as values and promises; imports nothing from the packages below it."""
