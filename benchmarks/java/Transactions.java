import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Half messages that are committed at once; what is counted is what consumers could see. */
final class Transactions {
    private final RocketmqDriver driver;

    Transactions(RocketmqDriver driver) {
        this.driver = driver;
    }

    RocketmqDriver.Work sending() throws Exception {
        String topic = driver.createTopic("bench-transactions");
        TransactionMQProducer producer = new TransactionMQProducer("bench-transactions-group");
        producer.setNamesrvAddr(driver.text("address"));
        producer.setSendMsgTimeout(30_000);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message half, Object argument) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt half) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        return driver.flooding("transactions", topic, 1, number -> RocketmqDriver.acknowledged(
            producer.sendMessageInTransaction(new Message(topic, driver.body(number)), null)));
    }
}
