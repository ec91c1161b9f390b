class Trainer:
    def __init__(self, sess, model):
        self.sess = sess
        self.model = model

    def run(self, batches):
        for batch in batches:
            print(self.model.evaluate(self.sess, batch))
