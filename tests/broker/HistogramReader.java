import java.io.File;
import org.HdrHistogram.EncodableHistogram;
import org.HdrHistogram.Histogram;
import org.HdrHistogram.HistogramLogReader;

/**
 * Reads an interval log with HdrHistogram's own reader and prints a line for each interval: tag, start and end in
 * milliseconds since the epoch, number of values, and the values at which they are counted.
 *
 * Called as {@code HistogramReader FILE}.
 */
public final class HistogramReader {
    public static void main(String[] arguments) throws Exception {
        HistogramLogReader reader = new HistogramLogReader(new File(arguments[0]));
        EncodableHistogram next;
        while ((next = reader.nextIntervalHistogram()) != null) {
            Histogram histogram = (Histogram) next;
            StringBuilder line = new StringBuilder();
            line.append(histogram.getTag()).append(' ').append(histogram.getStartTimeStamp()).append(' ')
                .append(histogram.getEndTimeStamp()).append(' ').append(histogram.getTotalCount());
            histogram.recordedValues().forEach(value -> {
                for (long i = 0; i < value.getCountAtValueIteratedTo(); i++) {
                    line.append(' ').append(value.getValueIteratedTo());
                }
            });
            System.out.println(line);
        }
    }
}
