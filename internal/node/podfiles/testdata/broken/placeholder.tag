__TAG__
