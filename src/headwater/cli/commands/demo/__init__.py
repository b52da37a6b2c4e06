"""`headwater demo`"""
