"""Built-in sentences for words with two meanings. Each sentence is labelled with the meaning of the word."""

SENTENCES: dict[str, tuple[tuple[str, str], ...]] = {
    "bank": (
        ("river", "They sat on the bank of the river and watched the water."),
        ("river", "The boat was tied to a tree on the left bank of the river."),
        ("river", "Tall grass grew along the bank of the stream."),
        ("river", "The water rose over the bank and flooded the fields."),
        ("money", "She put her money in the bank and paid her debts."),
        ("money", "The bank refused to lend the company more money."),
        ("money", "He works for a bank in the city and sells loans."),
        ("money", "The government closed the bank after it lost its money."),
    ),
    "right": (
        ("side", "Turn right at the church and cross the bridge."),
        ("side", "He held the book in his right hand."),
        ("side", "The road on the right leads to the north of the town."),
        ("side", "She lost the use of her right arm in the war."),
        ("law", "The people have the right to elect their government."),
        ("law", "The court said that women have the right to vote."),
        ("law", "Every citizen has a right to own land under the law."),
        ("law", "The king gave the city the right to hold a market."),
    ),
}
"""Word -> (meaning, sentence)."""
